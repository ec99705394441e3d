"""Reports as one HTML page without network: pictures and tables by Python, sorting and searching by a small script.

    Report ──► sections of HTML and SVG, data as JSON ──► page with page.css and page.js in it

Start with `write_page`.
"""

from ipu_tf.reports.page.document import page_html, write_page

__all__ = ["page_html", "write_page"]
