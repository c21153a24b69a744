"""Any table with a name and a duration per row, where no other loader accepts the input.

generic_table: loader; splits regular lines in bulk
table_layout: detect separator, headings, their meaning and units, from the first lines
cell_values: convert cells to event columns, in bulk or row by row
line_records: iterate over records of delimited text or JSON lines (slow path)
"""
