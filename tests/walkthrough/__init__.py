"""A page to the letter, in an environment that has what it installs: typed, written, and its outputs awaited.

A comment before each box says what becomes of it:

    run [TEXTS]         the commands are typed; each text is in their output, or the consumer prints it
    start TEXT          the command is typed and left running; it prints the text
    redis-server        the server is started on a free port, in place of the port of the page
    export              the variables are set for all commands that follow
    file PATH           the code is added to a file
    replace PATH        the code replaces the function of that name in a file
    shell TEXTS         the code is typed into `manage.py shell`; the consumer prints the texts
    redis-cli TEXTS     like `run`, where the machine has a redis-cli
    skip REASON         nothing

and these stand alone:

    open ADDRESS => TEXTS                           the page is opened, and has the texts
    press ADDRESS FORM NAME=VALUE... => TEXTS       the form is filled in and sent; the consumer prints the texts
    redrive QUEUE ERROR => TEXTS                    the dead letter with this error is redriven in the admin
    stop COMMAND                                    Ctrl-C where this runs
    wait TEXTS                                      what comes by itself
"""
