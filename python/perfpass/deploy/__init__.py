"""Deployment advice derived from predictions."""
