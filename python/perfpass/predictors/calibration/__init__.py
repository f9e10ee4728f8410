"""Predictions corrected by what a user has measured on a device."""
