"""Policy versions in, promotions out."""
