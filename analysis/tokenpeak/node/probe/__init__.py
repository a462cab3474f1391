"""What a node is: boards, engines, models, machine."""
