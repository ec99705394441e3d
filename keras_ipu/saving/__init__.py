"""Options and stages of saved, loaded, copied and cloned models, and exports for serving."""
