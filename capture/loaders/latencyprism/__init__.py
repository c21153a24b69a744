"""LatencyPrism's comparison report, and its processed CSV files."""
