"""Results as JSON, as Markdown, as charts and as one page."""
