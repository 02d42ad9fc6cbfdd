// Command web runs the Sandbook server and its administration. It wires the
// parts together and holds no logic of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"sandbook/kernel/notebook"
)

const usage = `Sandbook: a notebook in which code runs in sandboxes.

  web run       start the server; web run -h lists the settings
  web doctor    say what the sandboxes of this machine enforce
  web config    print the settings in force and where each comes from
  web token     make, list or revoke access tokens for agents
  web link      print the sign-in link again
  web reap      end all sandboxes of a server that is not running
  web version   print versions
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, stop, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		msg := err.Error()
		if e, ok := errors.AsType[*notebook.Error](err); ok {
			msg = e.Message
		}
		fmt.Fprintln(os.Stderr, "web:", msg)
		os.Exit(1)
	}
}

// command runs one subcommand. release stops catching signals, so that a second
// one ends the process at once.
func command(ctx context.Context, release func(), args []string, getenv func(string) string, out, errs io.Writer) error {
	if len(args) == 0 {
		_, err := io.WriteString(out, usage)
		return err
	}
	name, rest := args[0], args[1:]
	switch name {
	case "help", "-h", "--help":
		_, err := io.WriteString(out, usage)
		return err
	case "version":
		return version(out)
	case "run", "doctor", "config", "token", "link", "reap":
	default:
		return fmt.Errorf("there is no command %q; the commands are run, doctor, config, token, link, reap, version", name)
	}
	if name == "token" {
		return token(ctx, rest, getenv, out, errs)
	}
	cfg, from, err := loadConfig(rest, getenv, errs)
	if err != nil {
		return err
	}
	switch name {
	case "doctor":
		return doctor(ctx, cfg, out)
	case "config":
		return printConfig(cfg, from, getenv, out)
	case "link":
		return printLink(cfg, out)
	case "reap":
		return reap(ctx, cfg, out)
	}
	return run(ctx, release, cfg, out, errs)
}
