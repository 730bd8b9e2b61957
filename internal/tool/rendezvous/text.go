package rendezvous

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxText is how much of a peer's words is shown.
const maxText = 400

// Clean returns text of a peer in a form that can be shown: cut, and without the
// characters that a terminal obeys.
func Clean(s string) string {
	quoted := fmt.Sprintf("%.*q", maxText, s)
	return string(bytes.ReplaceAll([]byte(quoted[1:len(quoted)-1]), []byte(`\"`), []byte(`"`)))
}

// unmarshal reads a line of a peer.
func unmarshal(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("the other side sent a line that does not fit: %w", err)
	}
	return nil
}
