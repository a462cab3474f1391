"""Protocol between controller and node script: a type for each request and each answer, for both sides."""
