"""Ansible as the controller drives it: playbooks, their actions and strategies, channels that are kept open."""
