"""A fleet: one question asked of many hosts through Dask.

A host answers a question with the command line that one machine runs, in processes of its own. Dask carries
small requests and pieces of files; it neither measures nor keeps a result. Every answer is stored on its host
first, under a key of run, question, host and attempt, so that asking twice does not measure twice.

`certificates`, `addresses`     who may connect, and where
`scheduler`, `host`, `embedded` the processes of a fleet
`on_host`, `question`, `parcels` what runs on a host: requests, one question, received files
`client`, `sending`, `asking`   what runs on the client: requests to hosts, sent files, a whole run
`runs`, `requests`              the client's record of runs; a command line with its files
"""
