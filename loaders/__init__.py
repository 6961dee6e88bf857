"""Everything that brings rows in: formats, mapping, and loads. Stands on `store`, knows no HTTP."""
