{{/* The container's volumes. Secrets are mounted as folders, so that changed files reach the pod. */}}

{{- define "millrace.hasNATSFiles" -}}
{{- with .Values.nats }}{{ if or .credsKey .nkeyKey }}true{{ end }}{{ end -}}
{{- end }}

{{- define "millrace.hasTLSFiles" -}}
{{- with .Values.nats.tls }}{{ if or .caKey .certKey .keyKey }}true{{ end }}{{ end -}}
{{- end }}

{{- define "millrace.volumes" -}}
{{- $nats := .Values.nats -}}
- name: tmp
  emptyDir:
    sizeLimit: 1Gi
{{- if include "millrace.hasNATSFiles" . }}
- name: nats
  secret:
    secretName: {{ $nats.existingSecret }}
    defaultMode: 0440
    items: {{ include "millrace.items" (list $nats.credsKey $nats.nkeyKey) }}
{{- end }}
{{- if include "millrace.hasTLSFiles" . }}
- name: tls
  secret:
    secretName: {{ $nats.tls.existingSecret | default $nats.existingSecret }}
    defaultMode: 0440
    items: {{ include "millrace.items" (list $nats.tls.caKey $nats.tls.certKey $nats.tls.keyKey) }}
{{- end }}
{{- if $nats.embedded.enabled }}
- name: data
  emptyDir:
    sizeLimit: {{ $nats.embedded.sizeLimit }}
{{- end }}
{{- include "millrace.operatorVolumes" . }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* millrace.items returns the keys of a Secret that are set. These keys become files. */}}
{{- define "millrace.items" -}}
{{- $items := list -}}
{{- range compact . -}}
{{- $items = append $items (dict "key" . "path" .) -}}
{{- end -}}
{{ toJson $items }}
{{- end }}

{{- define "millrace.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if include "millrace.hasNATSFiles" . }}
- name: nats
  mountPath: /etc/millrace/nats
  readOnly: true
{{- end }}
{{- if include "millrace.hasTLSFiles" . }}
- name: tls
  mountPath: /etc/millrace/tls
  readOnly: true
{{- end }}
{{- if .Values.nats.embedded.enabled }}
- name: data
  mountPath: {{ .Values.nats.embedded.dataDir | quote }}
{{- end }}
{{- include "millrace.operatorMounts" . }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
