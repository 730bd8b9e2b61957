package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/hca/control"
)

func newOfficer() *cobra.Command {
	c := &cobra.Command{
		Use:     "officer",
		GroupID: groupDevice,
		Short:   "Change the secrets of a run while its programs work",
		Long: `Officer changes the secrets of a run that was started with --control SOCKET, or with
--officer SOCKET, as a crypto officer does: it adds, replaces and deletes import KEKs and
credentials of devices in wrapped import mode. A login whose KEK or credential was
replaced or deleted becomes invalid, as on an adapter; the DEKs that were made with it
stay.

Fail-dek puts a data encryption key that a program has made into state error, in both
import modes, as if the adapter had found its memory corrupted: requests that use it fail.

Only the user who started the run, and root, may do this.`,
		Example: `  softmkey run --officer /tmp/officer --crypto wrapped --kek 1=old.kek --credential 1=credential.key -- ./program
  softmkey officer list /tmp/officer
  softmkey officer replace-kek /tmp/officer 1=new.kek
  softmkey officer delete-credential /tmp/officer 1
  softmkey officer fail-dek /tmp/officer mlx5_0 0x12`,
		Args: cobra.ArbitraryArgs,
		RunE: needsCommand,
	}
	c.AddCommand(
		newOfficerList(),
		newOfficerPut("add-kek", "Add an import KEK of 16 or 32 bytes", control.AddKEK, dek.ParseKEK),
		newOfficerPut("replace-kek", "Replace a KEK; logins with the old one become invalid", control.ReplaceKEK, dek.ParseKEK),
		newOfficerDelete("delete-kek", "Delete a KEK; logins with it become invalid", control.DeleteKEK),
		newOfficerPut("add-credential", "Add a credential of 40 bytes", control.AddCredential, dek.ParseWrapped),
		newOfficerPut("replace-credential", "Replace a credential; logins with the old one become invalid", control.ReplaceCredential, dek.ParseWrapped),
		newOfficerDelete("delete-credential", "Delete a credential; logins with it become invalid", control.DeleteCredential),
		newOfficerFail(),
	)
	return c
}

// withFlag adds a hint to the error that no run listens at a socket: the flag with which a run opens one.
func withFlag(err error) error {
	var none *control.NoRunError
	if errors.As(err, &none) {
		return fmt.Errorf("%w: start it with --control %s", err, none.Path)
	}
	return err
}

// instruct sends a request to a run.
func instruct(socket string, r *control.Request) (*control.Reply, error) {
	answer, err := control.Do(socket, r)
	if err != nil {
		return nil, fmt.Errorf("officer: %w", withFlag(err))
	}
	return answer, nil
}

func newOfficerPut(name, short string, op control.Op, parse func([]byte) ([]byte, error)) *cobra.Command {
	return &cobra.Command{
		Use:               name + " SOCKET [ID=]FILE",
		Short:             short,
		Long:              short + ".\n\nFILE holds it as raw bytes or as hexadecimal digits. ID is 0 by default.",
		Args:              operands("SOCKET", "FILE"),
		ValidArgsFunction: completeSocket(cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)),
		RunE: func(_ *cobra.Command, args []string) error {
			id, file, err := numberedFile(args[1])
			if err != nil {
				return fmt.Errorf("officer: %w", err)
			}
			secret, err := readKeyFile(fileFlag(file), true, parse)
			if err != nil {
				return err
			}
			defer clear(secret)
			_, err = instruct(args[0], &control.Request{Op: op, ID: id, Secret: secret})
			return err
		},
	}
}

func newOfficerDelete(name, short string, op control.Op) *cobra.Command {
	return &cobra.Command{
		Use:               name + " SOCKET ID",
		Short:             short,
		Long:              short + ".",
		Args:              operands("SOCKET", "ID"),
		ValidArgsFunction: completeSocket(cobra.NoFileCompletions),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := parseID(args[1])
			if err != nil {
				return fmt.Errorf("officer: %w", err)
			}
			_, err = instruct(args[0], &control.Request{Op: op, ID: id})
			return err
		},
	}
}

func newOfficerFail() *cobra.Command {
	return &cobra.Command{
		Use:   "fail-dek SOCKET DEVICE NUMBER",
		Short: "Put a DEK into state error",
		Long: `Fail-dek puts the data encryption key NUMBER of DEVICE into state error. List shows
the devices and numbers, and so does a trace of the run.`,
		Args:              operands("SOCKET", "DEVICE", "NUMBER"),
		ValidArgsFunction: completeSocket(cobra.NoFileCompletions),
		RunE: func(_ *cobra.Command, args []string) error {
			number, err := parseID(args[2])
			if err != nil {
				return fmt.Errorf("officer: %w", err)
			}
			_, err = instruct(args[0], &control.Request{Op: control.FailDEK, Device: args[1], ID: number})
			return err
		},
	}
}

func newOfficerList() *cobra.Command {
	return &cobra.Command{
		Use:               "list SOCKET",
		Short:             "List the ids of KEKs, credentials and DEKs",
		Long:              "List prints the import mode, and the ids of KEKs, credentials and DEKs. It shows no secret.",
		Args:              operands("SOCKET"),
		ValidArgsFunction: completeSocket(cobra.NoFileCompletions),
		RunE: func(c *cobra.Command, args []string) error {
			answer, err := instruct(args[0], &control.Request{Op: control.List})
			if err != nil {
				return err
			}
			return printList(c.OutOrStdout(), answer)
		},
	}
}

func printList(w io.Writer, a *control.Reply) error {
	var b strings.Builder
	fmt.Fprintf(&b, "import mode: %s\n", a.Mode)
	for _, id := range a.KEKs {
		fmt.Fprintf(&b, "kek %d\n", id)
	}
	for _, id := range a.Credentials {
		fmt.Fprintf(&b, "credential %d\n", id)
	}
	for _, d := range a.DEKs {
		fmt.Fprintf(&b, "dek %s %#x: %d bits, process %d\n", d.Device, d.Number, d.Bits, d.Process)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// numberedFile reads "[ID=]FILE".
func numberedFile(s string) (id uint32, file string, err error) {
	number, name, ok := strings.Cut(s, "=")
	if !ok {
		return 0, s, nil
	}
	id, err = parseID(number)
	return id, name, err
}

// parseID reads the number of a KEK, credential or DEK.
func parseID(s string) (uint32, error) {
	n, err := number.Parse(s, 24)
	if err != nil {
		return 0, fmt.Errorf("ID %q: must be a number below 0x1000000, in decimal or in hexadecimal after 0x", s)
	}
	return uint32(n), nil
}
