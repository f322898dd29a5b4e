package exchange

import "encoding/json"

// object is a JSON object that keeps the order of its keys.
type object struct{ text []byte }

// put adds a key and its value.
func (o *object) put(key string, value []byte) {
	separator := byte(',')
	if len(o.text) == 0 {
		separator = '{'
	}
	o.text = append(append(o.text, separator), encoded(key)...)
	o.text = append(append(o.text, ':'), value...)
}

// fail adds why a record has no values.
func (o *object) fail(reason string) {
	o.put("error", encoded(map[string]string{"reason": reason}))
}

// end returns the object.
func (o *object) end() json.RawMessage {
	if len(o.text) == 0 {
		return json.RawMessage("{}")
	}
	return append(o.text, '}')
}

// raw returns bytes that nobody can read otherwise: {"base64":"AP8="}.
func raw(value []byte) json.RawMessage {
	return encoded(map[string][]byte{"base64": value})
}

// encoded returns a value that always has JSON.
func encoded(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it is a text, a list of numbers, or a map of those
	}
	return text
}
