"""The published JSON Schemas, one folder for each major version. Generated from protocol."""
