"""How the report draws: styles, panels and pictures, SVG for the page, and what several figures share."""
