"""An HTTP service for saved models: worker processes that share a socket and a copy of the weights in memory.

=============  ===================================================================================
module         content
=============  ===================================================================================
``settings``   models, address and limits of a service
``master``     the process that starts, restarts, reloads and stops the workers
``worker``     a worker process: connections, spread evenly over workers; models, reload, orderly end
``protocol``   HTTP with time limits for slow clients
``app``        routes, API key, errors, limits
``stream``     NDJSON: answers flow while lines arrive
``engine``     the thread that computes; requests that wait are answered together
``abilities``  tag, parse, score and fill: fields, answers, tasks of models
``posterior``  the question of the page: marginals and best structures, given evidence
``page``       the page for a browser, in ``static/``: headers, facts about models
``requests``   checked input, and error messages
``metrics``    counters of all workers in shared memory
``openapi``    the OpenAPI document
``sockets``    addresses and sockets
=============  ===================================================================================
"""
