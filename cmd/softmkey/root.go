package main

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/softmkey/softmkey/sig"
)

// newRoot returns the root command with all commands. Tests and the generator of the manual
// pages use it, too.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "softmkey",
		Short: "Protect, check and encrypt block data as mlx5 memory keys do",
		Long: `softmkey runs files and streams through a memory key: it adds a signature to
every block of data, checks signatures, strips them, converts one kind into another,
and encrypts and decrypts with AES-XTS. The results are those of ConnectX hardware
between memory and the wire, bit for bit.

A protected stream consists of blocks, each followed by its signature field. The
fields are T10-DIF (guard, application tag, reference tag), CRC32, CRC32C or CRC64, and
in files also those of NVMe. 'softmkey help sig' describes how to write a signature on
the command line.

IN and OUT are files; '-' is standard input or standard output. An output file appears
under its name when it is complete and on the disk. After an error there is no output
file, and an existing file is unchanged. A file that is replaced keeps its mode, owner,
ACL and extended attributes; other hard links to it keep the old content. If the file
system does not support files without a name (NFS, FAT), a command that is killed with
SIGKILL leaves a file .NAME.softmkey-... behind. Data that was already written to
standard output or to a device stays. Files of any size are processed in constant
memory, on all cores.

A file that a command writes or replaces is locked against all other commands, and one
that it reads against those that write it, as flock(1) does. A command that finds a file
locked ends with an error that names the program.

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

		PersistentPreRunE: distinctFiles,
	}
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
		newProtect(), newVerify(), newStrip(), newConvert(), newInspect(), newDetect(),
		newTX(), newRX(), newDEK(), newNBD(),
		newCopy(), newDevinfo(), newRun(), newPCI(), newTarget(), newDraw(), newOfficer(), newControl(),
		newBench(), newVersion(), newSigHelp(), newJSONHelp(),
	)
	root.InitDefaultHelpCmd()
	helper, _, err := root.Find([]string{"help"})
	must(err)
	helper.Run, helper.RunE = nil, help
	return root
}

// help runs the command "softmkey help". It replaces Cobra's, which prints the help text of the
// root command for a topic that does not exist.
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

// needsCommand runs if a command line names a group of commands, such as "softmkey dek", and no
// command of the group. It prints the help text, or returns an error if there are operands.
func needsCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
		var names []string
		near := ""
		for _, s := range c.Commands() {
			if s.IsAvailableCommand() {
				names = append(names, s.Name())
			}
			if slices.Contains(s.SuggestFor, args[0]) {
				near = s.Name()
			}
		}
		if near = cmp.Or(near, nearest(args[0], names)); near != "" {
			text += fmt.Sprintf(": did you mean %q?", near)
		}
		return usage(c, errors.New(text))
	}
	return c.Help()
}

// checkLine returns an error for mistakes that Cobra accepts: an unknown command after a flag, and
// those that checkFlags finds.
func checkLine(root *cobra.Command, args []string) error {
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		return nil // the shell asks for completions of an unfinished command line
	}
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	root.InitDefaultCompletionCmd(args...)
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if c.HasSubCommands() {
		for _, word := range rest {
			if word == "--" {
				break
			}
			known := slices.ContainsFunc(c.Commands(), func(s *cobra.Command) bool { return s.Name() == word })
			if !strings.HasPrefix(word, "-") && !known {
				return needsCommand(c, []string{word})
			}
		}
	}
	c.InitDefaultHelpFlag()
	return checkFlags(c, rest)
}

// checkFlags returns an error if a flag that takes one value is given twice, if it is the last one
// before "--" and its value is missing, if its value is empty, as in a script that has not set a
// variable, or if a flag that excludes it is given. A flag without a value may be repeated.
func checkFlags(c *cobra.Command, args []string) error {
	var wrong error
	seen := make(map[string]string)
	// All other errors are reported later, when Cobra parses the flags.
	_ = c.Flags().ParseAll(args, func(f *pflag.Flag, value string) error {
		before, again := seen[f.Name]
		seen[f.Name] = value
		switch {
		case wrong != nil:
		case value == "--":
			wrong = usage(c, fmt.Errorf("flag needs an argument: --%s", f.Name))
		case value == "" && slices.Contains([]string{"string", "stringArray", "stringSlice", "FILE"}, f.Value.Type()):
			wrong = usage(c, fmt.Errorf(`--%s "": the value is empty`, f.Name))
		case octal.MatchString(value) && strings.Contains(f.Value.Type(), "int"):
			wrong = usage(c, fmt.Errorf("--%s %s: a number is decimal, without zeros in front, or hexadecimal after 0x", f.Name, value))
		}
		switch f.Value.(type) {
		case pflag.SliceValue, *addrList:
			return nil
		}
		if again && wrong == nil && !(f.Value.Type() == "bool" && value == before) {
			wrong = usage(c, fmt.Errorf("--%s is given twice, as %s and as %s", f.Name, before, value))
		}
		for _, other := range f.Annotations[exclusiveFlags] {
			if _, given := seen[other]; given && other != f.Name && wrong == nil {
				wrong = usage(c, fmt.Errorf("--%s and --%s exclude each other: give one of them", other, f.Name))
			}
		}
		return nil
	})
	return wrong
}

// octal matches the numbers that pflag reads as octal or binary, or with underscores.
var octal = regexp.MustCompile(`^[-+]?0[0-9bBoO]|_`)

// exclusiveFlags is the annotation of a flag with the names of those that cannot be given beside it.
const exclusiveFlags = "softmkey_exclusive"

// exclusive makes flags exclude each other. Cobra leaves them out of completions, and checkFlags
// reports them before Cobra does.
func exclusive(c *cobra.Command, names ...string) {
	c.MarkFlagsMutuallyExclusive(names...)
	for _, name := range names {
		f := c.Flags().Lookup(name)
		if f.Annotations == nil {
			f.Annotations = make(map[string][]string)
		}
		f.Annotations[exclusiveFlags] = append(f.Annotations[exclusiveFlags], names...)
	}
}

// strayFormat returns an error if one of too many operands is a signature, which needs a flag.
func strayFormat(c *cobra.Command, args []string) error {
	for _, name := range []string{"sig", "from", "wire"} {
		f := c.Flags().Lookup(name)
		if f == nil || f.Changed {
			continue
		}
		for _, word := range args {
			if _, err := sig.ParseFormat(word); err == nil {
				return fmt.Errorf("%q is one operand too many: a signature needs its flag: --%s %[1]s", word, name)
			}
		}
	}
	return nil
}

// flagError returns the error for an invalid flag.
func flagError(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		value := cmp.Or(invalid.GetValue(), `""`)
		why := invalid.Unwrap()
		switch kind := invalid.GetFlag().Value.Type(); kind { // types of pflag, whose errors are those of strconv
		case "duration":
			why = errors.New("must be a time with its unit, such as 500ms, 5s or 1m")
		case "int", "int64", "uint8", "uint16", "uint32", "uint64":
			why = errors.New("must be a whole number")
			switch {
			case errors.Is(invalid, strconv.ErrRange):
				why = errors.New("is too large")
			case kind[0] == 'u' && value[0] == '-':
				why = errors.New("must not be negative")
			}
		case "bool":
			why = errors.New("must be true or false, or left out")
		}
		err = fmt.Errorf("--%s %s: %w", invalid.GetFlag().Name, value, why)
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		near := nearest(unknown.GetSpecifiedName(), names)
		if long, _, _ := strings.Cut(unknown.GetSpecifiedShortnames(), "="); slices.Contains(names, long) {
			near = long // one dash too few
		}
		if near != "" {
			err = fmt.Errorf("%w: did you mean --%s?", err, near)
		}
	}
	return usage(c, err)
}

// nearest returns the name that differs least from a word, or "" if none has at most two edits.
func nearest(word string, names []string) string {
	const most = 2 // characters that are added, left out or changed
	best, found := most+1, ""
	for _, name := range names {
		if d := edits(word, name); d < best && d < len(word) {
			best, found = d, name
		}
	}
	return found
}

// edits returns the Levenshtein distance of two words.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

func usage(c *cobra.Command, err error) error { return usageError{c.CommandPath(), err} }

// usageLine returns the first form of a command line.
func usageLine(c *cobra.Command) string {
	line, _, _ := strings.Cut(c.UseLine(), "\n")
	return line
}

// operands returns a check for the operands of a command, by their names.
func operands(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < len(names) {
			name, piped := names[len(args)], ""
			if name == "IN" {
				piped = " ('-' is standard input)"
			}
			return usage(c, fmt.Errorf("%s is missing%s: usage: %s", name, piped, usageLine(c)))
		}
		if at := slices.Index(args, ""); at >= 0 && at < len(names) {
			return usage(c, fmt.Errorf("%s is an empty name: usage: %s", names[at], usageLine(c)))
		}
		if len(args) > len(names) {
			if missing := strayFormat(c, args); missing != nil {
				return usage(c, missing)
			}
			return usage(c, fmt.Errorf("%q is one operand too many: usage: %s", args[len(names)], usageLine(c)))
		}
		return nil
	}
}
