"""What the pages of the admin show values with."""
