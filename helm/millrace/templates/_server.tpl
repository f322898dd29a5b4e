{{/* This file checks the addresses of NATS servers and of the worker's own servers like the worker (internal/config/syntax.go). */}}

{{/* millrace.addresses returns the addresses in nats.url as a JSON list. */}}
{{- define "millrace.addresses" -}}
{{- $addresses := list -}}
{{- with .Values.nats.url | default "" | trim -}}
{{- range splitList "," . -}}
{{- $addresses = append $addresses (trim .) -}}
{{- end -}}
{{- end -}}
{{ toJson $addresses }}
{{- end }}

{{/* millrace.scheme returns the scheme of an address in lower case, or nothing if the address has no scheme. */}}
{{- define "millrace.scheme" -}}
{{ regexFind "^[^/]*://" . | trimSuffix "://" | lower }}
{{- end }}

{{/* millrace.authority returns host and port of an address, without a user. */}}
{{- define "millrace.authority" -}}
{{ regexReplaceAll "^([^/]*://)?([^/?#]*@)?([^/?#]*).*$" . "${3}" }}
{{- end }}

{{/* millrace.portOf returns the port of an address. If the address has no port, this is the NATS client's default port for the scheme. */}}
{{- define "millrace.portOf" -}}
{{- $port := include "millrace.authority" . | regexFind ":[0-9]+$" | trimPrefix ":" -}}
{{ $port | default (get (dict "ws" "80" "wss" "443") (include "millrace.scheme" .) | default "4222") }}
{{- end }}

{{/* millrace.addressProblems returns problems without the addresses, which may contain a password. */}}
{{- define "millrace.addressProblems" -}}
{{- $schemes := list "nats" "tls" "ws" "wss" }}
{{- $sockets := 0 }}
{{- $addresses := include "millrace.addresses" . | fromJsonArray }}
{{- range $i, $address := $addresses }}
{{- $scheme := include "millrace.scheme" $address }}
{{- $authority := include "millrace.authority" $address }}
{{- if has $scheme (list "ws" "wss") }}{{ $sockets = add1 $sockets }}{{ end }}
{{- $which := len $addresses | eq 1 | ternary "nats.url" (printf "address %d in nats.url" (add1 $i)) }}
{{- if not $address }}
{{ $which }} is empty: remove the comma that is too many
{{- else if regexMatch "\\s" $address }}
{{ $which }} contains a space: separate addresses with commas
{{- else if and $scheme (not (has $scheme $schemes)) }}
{{ $which }} begins with {{ $scheme }}://, which is not a NATS server's address: begin with nats://, tls://, ws:// or wss://, such as nats://nats:4222
{{- else if regexMatch "^(:[0-9]*)?$" $authority }}
{{ $which }} has no host: set it to one such as nats://nats:4222
{{- else if and (not $scheme) (not (regexMatch ":[0-9]+$" $authority)) }}
{{ $which }} has neither a scheme nor a port: write nats://{{ regexMatch "^[A-Za-z0-9.-]+$" $authority | ternary $authority "HOST" }}:4222
{{- else if not (regexMatch "^([^:]+|\\[[^\\]]+\\])(:[0-9]{1,5})?$" $authority) }}
{{ $which }} is not a host and a port: write it as nats://HOST:PORT, with an IPv6 address in square brackets
{{- else if or (lt (include "millrace.portOf" $address | int) 1) (gt (include "millrace.portOf" $address | int) 65535) }}
{{ $which }} has the port {{ include "millrace.portOf" $address }}: a port is a number from 1 to 65535
{{- end }}
{{- end }}
{{- if and $sockets (ne (int $sockets) (len $addresses)) }}
nats.url mixes WebSocket addresses with others, which the NATS client refuses: use only ws:// and wss:// addresses, or none
{{- end }}
{{- include "millrace.listenProblems" . }}
{{- end }}

{{/* millrace.listenProblems returns a problem for each port that two of the worker's servers would use. */}}
{{- define "millrace.listenProblems" -}}
{{- $http := int64 .Values.http.port }}
{{- with .Values.config.debugAddr }}
{{- $port := regexFind "[0-9]+$" . | int64 }}
{{- if eq $port $http }}
config.debugAddr has the port of http.port ({{ $http }}), and a port can have only one server: set another, such as 127.0.0.1:6060
{{- else if gt $port 65535 }}
config.debugAddr has the port {{ $port }}: a port is a number from 0 to 65535
{{- else if and $.Values.nats.embedded.enabled (eq $port 4222) }}
config.debugAddr has port 4222, on which the server of nats.embedded listens: set another, such as 127.0.0.1:6060
{{- end }}
{{- end }}
{{- if and .Values.nats.embedded.enabled (eq $http 4222) }}
http.port is 4222, on which the server of nats.embedded listens: set another, such as 9464
{{- end }}
{{- end }}
