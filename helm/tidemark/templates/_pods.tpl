{{- /* Parts of pods that all components share. Arguments: root, role, values, and name of the component's objects. */ -}}
{{- define "tidemark.pod" -}}
{{- $v := .root.Values -}}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- with $v.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
affinity:
  podAntiAffinity:
    {{- if eq $v.antiAffinity "hard" }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "tidemark.selector" . | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "tidemark.selector" . | nindent 14 }}
    {{- end }}
topologySpreadConstraints:
  - maxSkew: {{ $v.topologySpread.maxSkew }}
    topologyKey: {{ $v.topologySpread.topologyKey }}
    whenUnsatisfiable: {{ $v.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "tidemark.selector" . | nindent 8 }}
{{- end -}}

{{- define "tidemark.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Without the chart's version: an upgrade that changes nothing else restarts no pod. */ -}}
{{- define "tidemark.metadata" -}}
labels:
  {{- include "tidemark.selector" . | nindent 2 }}
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/config: {{ .checksum }}
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* Head of a StatefulSet's specification. */ -}}
{{- define "tidemark.set" -}}
serviceName: {{ .name }}
replicas: {{ .values.replicas }}
podManagementPolicy: Parallel
updateStrategy: {type: {{ .values.updateStrategy }}}
persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}
selector:
  matchLabels:
    {{- include "tidemark.selector" . | nindent 4 }}
{{- end -}}

{{- define "tidemark.claim" -}}
accessModes: [ReadWriteOnce]
{{- with .storageClassName }}
storageClassName: {{ . }}
{{- end }}
resources: {requests: {storage: {{ .size }}}}
{{- end -}}
