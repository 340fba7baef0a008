"""Small files of our own in each import format, and the script that makes them."""
