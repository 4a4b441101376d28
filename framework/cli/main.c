/* SPDX-License-Identifier: Apache-2.0 */
/* cli/main.c - `strata COMMAND ...`: finds the command, runs it, cleans up. */
#include "config.h"
#include "cli/commands.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLI_ROW(name, fn, summary) {name, summary, fn},
static const struct command {
    const char *name, *summary;
    cli_fn run;
} commands[] = {ST_COMMANDS(CLI_ROW)};

static void print_usage(FILE *to)
{
    fputs("usage: strata COMMAND [OPTION...] [ARGUMENT...]\n"
          "       strata --version\n"
          "\n"
          "Trains hybrid vision-language models whose parts are plugins, from an INI file (a spec).\n"
          "\n"
          "commands:\n",
          to);
    for (size_t i = 0; i < ST_COUNT(commands); i++) fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fputs("\n"
          "`strata COMMAND --help`, or `strata help COMMAND`, tells what a command takes.\n"
          "exit status: 0 done, 1 a spec, plugin or data was refused, 2 wrong usage, 3 failed while running\n",
          to);
}

static int unknown(const char *name)
{
    static const char *const options[] = {"--help", "--version"};
    const char *names[ST_COUNT(commands)], *nearest;
    bool option = name[0] == '-';

    for (size_t i = 0; i < ST_COUNT(commands); i++) names[i] = commands[i].name;
    nearest = option ? st_nearest(name, options, ST_COUNT(options)) : st_nearest(name, names, ST_COUNT(commands));
    fprintf(stderr, "strata: there is no %s '%s'", option ? "option" : "command", name);
    if (nearest) fprintf(stderr, "; did you mean '%s'?", nearest);
    fputs("\nTry 'strata --help'.\n", stderr);
    return CLI_USAGE;
}

static int run(const struct command *c, int argc, char **argv)
{
    st_cli cli = {.out = stdout, .err = stderr, .diags = calloc(1, sizeof *cli.diags), .arena = st_arena_create(0)};
    char name[64];
    int code = CLI_FAILED;

    snprintf(name, sizeof name, "strata %s", c->name);
    argv[0] = name; /* getopt's own messages begin with it */
    if (cli.diags && cli.arena) code = c->run(&cli, argc, argv);
    else fputs("strata: no memory\n", stderr);
    free(cli.plugin_path);
    free(cli.sets);
    free(cli.diags);
    st_arena_destroy(cli.arena);
    st_base_destroy(cli.base);
    return code;
}

/* Of a stream that was closed, its number would be that of the next file opened, a run's metrics, say, and what is
 * meant for the screen would go there. open() takes the lowest number; reading and writing fail as on the closed one. */
static void fill_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

static int run_named(const char *name, int argc, char **argv)
{
    for (size_t i = 0; i < ST_COUNT(commands); i++)
        if (!strcmp(name, commands[i].name)) return run(&commands[i], argc, argv);
    return unknown(name);
}

/* `strata help COMMAND` is `strata COMMAND --help`. */
static int help(int argc, char **argv)
{
    char option[] = "--help", *words[] = {NULL, option, NULL};

    if (argc > 1) return run_named(argv[1], 2, words);
    print_usage(stdout);
    return CLI_OK;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    int code = CLI_OK;

    fill_streams();
    if (!strcmp(word, "--version") || !strcmp(word, "-V"))
        printf("strata %s\nplugin ABI %u.%u\nLicense: Apache-2.0\n", PACKAGE_VERSION, ST_ABI_MAJOR, ST_ABI_MINOR);
    else if (!strcmp(word, "--help") || !strcmp(word, "-h")) print_usage(stdout);
    else if (!*word) {
        print_usage(stderr);
        code = CLI_USAGE;
    } else if (!strcmp(word, "help")) code = help(argc - 1, argv + 1);
    else code = run_named(word, argc - 1, argv + 1);
    if (fflush(stdout) || ferror(stdout)) { /* a full disk must not look like success */
        perror("strata: standard output");
        if (code == CLI_OK) code = CLI_FAILED;
    }
    return code;
}
