"""Reports: building, checking, comparing, reviewing and exporting them."""
