"""From frames to notebooks, figures and the static site."""
