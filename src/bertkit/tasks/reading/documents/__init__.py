"""Documents in files of their own: plain text, Markdown, HTML, Word, PDF and e-mail, as text with headings."""
