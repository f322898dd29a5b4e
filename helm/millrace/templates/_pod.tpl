{{/* What the worker's pods and the one of helm test have in common. */}}

{{/* Takes the root context. */}}
{{- define "millrace.podSettings" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{ end -}}
serviceAccountName: {{ include "millrace.serviceAccountName" . }}
automountServiceAccountToken: false
# A Service called millrace would be told to pods as MILLRACE_PORT and the like, which are no variables of the worker.
enableServiceLinks: false
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
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

{{/* A constraint that names no pods is about those of the Deployment. */}}
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
