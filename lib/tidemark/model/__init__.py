"""Types that all services share: ids, errors, images of the metadata, configurations. Pure."""
