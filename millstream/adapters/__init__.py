"""One library a file; only `millstream.bootstrap` picks among them."""
