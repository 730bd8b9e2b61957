package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newRoot returns the command line. Tests and the generator of the manual use the same
// commands as users.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "softmkey",
		Short: "Protect, check and encrypt block data as mlx5 memory keys do",
		Long: `softmkey runs files and streams through a memory key: it adds a signature to
every block of data, checks signatures, strips them, converts one kind into another,
and encrypts and decrypts with AES-XTS. The results are those of ConnectX hardware
between memory and the wire, bit for bit.

A protected stream consists of blocks, each followed by its signature field. The
fields are T10-DIF (guard, application tag, reference tag), CRC32, CRC32C or CRC64.
'softmkey help sig' describes how to write a signature on the command line.

IN and OUT are files; '-' is standard input or standard output. An output file
appears under its name when it is complete and on the disk. After an error there is
no output file, and a file that was there before is unchanged. Where the file system
has no files without a name (NFS, FAT), a command that is killed with SIGKILL leaves
.NAME.softmkey-... behind. Data that was already written to standard output or to a
device stays. Files of any size are processed in
constant memory, on all cores.

The exit status is 0 for success, 1 for a bad signature, and 2 for an error of usage,
configuration, input or output. If a signal ends the command, it is 128 plus the
number of the signal.`,
		Example: `  softmkey protect --sig t10dif disk.img disk.dif
  softmkey verify --sig t10dif disk.dif
  softmkey strip --sig t10dif disk.dif copy.img
  softmkey dek generate disk.key
  softmkey tx --wire t10dif --crypto encrypt --order before --unit 520 --dek disk.key disk.img disk.enc`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		Args:          cobra.ArbitraryArgs, // needsCommand reports them with a suggestion
		RunE:          needsCommand,
	}
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate(versionLine())
	root.AddGroup(
		&cobra.Group{ID: groupFiles, Title: "Everyday forms:"},
		&cobra.Group{ID: groupKeys, Title: "Memory keys:"},
		&cobra.Group{ID: groupDevice, Title: "Devices:"},
		&cobra.Group{ID: groupOther, Title: "Others:"},
	)
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newProtect(), newVerify(), newStrip(), newConvert(), newInspect(),
		newTX(), newRX(), newDEK(),
		newCopy(), newPerf(), newDevinfo(), newRun(),
		newBench(), newVersion(), newSigHelp(),
	)
	root.InitDefaultHelpCmd()
	helper, _, err := root.Find([]string{"help"})
	must(err)
	helper.Run, helper.RunE = nil, help
	return root
}

// help runs for the command help. Cobra's own prints the help text of the root for a topic
// that does not exist.
func help(c *cobra.Command, args []string) error {
	topic, rest, err := c.Root().Find(args)
	if err == nil && len(rest) > 0 {
		err = needsCommand(topic, rest)
	}
	if err != nil {
		return err
	}
	topic.InitDefaultHelpFlag()
	return topic.Help()
}

// The groups of the help text.
const (
	groupFiles  = "files"
	groupKeys   = "keys"
	groupDevice = "device"
	groupOther  = "other"
)

// needsCommand runs for a command line that names only a group of commands.
func needsCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
		if s := c.SuggestionsFor(args[0]); len(s) > 0 {
			text += fmt.Sprintf(": did you mean %q?", s[0])
		}
		return usage(c, errors.New(text))
	}
	return c.Help()
}

// flagError returns the error for an invalid flag.
func flagError(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		err = fmt.Errorf("--%s %s: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return usage(c, err)
}

func usage(c *cobra.Command, err error) error { return usageError{c.CommandPath(), err} }

// operands returns a check for the operands of a command, by their names.
func operands(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usage(c, fmt.Errorf("%s is missing: usage: %s", names[len(args)], c.UseLine()))
		}
		if len(args) > len(names) {
			return usage(c, fmt.Errorf("%q is one operand too many: usage: %s", args[len(names)], c.UseLine()))
		}
		return nil
	}
}
