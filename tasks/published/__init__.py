"""Tasks with the sets of data that papers on attention trained and tested on."""
