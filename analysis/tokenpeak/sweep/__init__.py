"""Carries a sweep out on the nodes of an inventory, through Ansible playbooks."""
