"""Reports: figures, curves and tables from arrays and run folders. Nothing here trains."""
