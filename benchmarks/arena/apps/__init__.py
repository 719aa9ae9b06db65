"""One task for each system, declared as that system's documentation declares a reliable one."""
