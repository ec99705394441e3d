"""Files of recorded events: options of the environment, the `.pvti` file, the JSON file that Perfetto opens.

    PVTI_OPTIONS ──► start ──► HostTrace ──► close ──► <time>_<pid>.pvti   `pva.openTrace` reads it
                                                       <time>_<pid>.json   ui.perfetto.dev opens it

Start with `session`.
"""
