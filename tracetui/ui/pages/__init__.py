"""What fills the screen besides the views, and the bands around it: as lines and tables, no widgets."""
