"""HOST. Results as one HTML file that opens from a disk: no network, no other file, readable on a telephone."""
