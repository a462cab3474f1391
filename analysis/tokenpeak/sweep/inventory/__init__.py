"""Inventories: their variables, as Ansible resolves them; what is wrong in their files; a first one."""
