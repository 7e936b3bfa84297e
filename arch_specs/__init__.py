"""TOML specs of draft families."""
