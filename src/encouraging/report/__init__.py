"""What a person reads about runs: the HTML report with its sections, figures and explorer, and the page of results."""
