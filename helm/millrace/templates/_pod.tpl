{{/* Settings that the workers' pods share with the pod of helm test. */}}

{{/* The argument is the root context. */}}
{{- define "millrace.podSettings" -}}
{{- with include "millrace.pullSecrets" . | fromJsonArray -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{ end -}}
serviceAccountName: {{ include "millrace.serviceAccountName" . }}
automountServiceAccountToken: false
# A Service called millrace would add variables such as MILLRACE_PORT to the pods, which the worker doesn't know.
enableServiceLinks: false
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "millrace.tolerations" . }}
{{ . }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  {{- include "millrace.volumes" . | nindent 2 }}
{{- end }}

{{/* millrace.topologySpread applies constraints without a labelSelector to the pods of the Deployment. */}}
{{- define "millrace.topologySpread" -}}
{{- $selector := dict "matchLabels" (include "millrace.selectorLabels" . | fromYaml) -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraints = append $constraints (merge (deepCopy .) (dict "labelSelector" $selector)) -}}
{{- end -}}
{{- with $constraints -}}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}

{{/*
millrace.strategy returns the Deployment's strategy, or nothing if it is null. With Recreate, it omits rollingUpdate from values.yaml, which
Kubernetes would reject.
*/}}
{{- define "millrace.strategy" -}}
{{- with .Values.strategy -}}
{{- if eq (get . "type") "Recreate" -}}
type: Recreate
{{- else -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}
{{- end }}
