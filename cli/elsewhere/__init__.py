"""Commands at a store elsewhere that upload files, or run as statements of SQL."""
