package jsonline

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxText is the longest text of a peer that is shown, in characters.
const maxText = 400

// Clean returns text of a peer in a form that is safe to show: cut to a bounded
// length, with control characters escaped.
func Clean(s string) string {
	quoted := fmt.Sprintf("%.*q", maxText, s)
	return string(bytes.ReplaceAll([]byte(quoted[1:len(quoted)-1]), []byte(`\"`), []byte(`"`)))
}

// unmarshal decodes a line of a peer into v. A line with fields that v does not have is an error, too.
func unmarshal(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("the other side sent a line that does not fit: %w", err)
	}
	return nil
}
