"""A project for consumers in processes of their own: settings and handlers, steered by the environment and by data."""
