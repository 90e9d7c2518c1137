{{- define "tidemark.secretsHook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* Account that may read, make and change Secrets. Arguments: root, name, and weight of a hook or "". */ -}}
{{- define "tidemark.secretsAccount" -}}
{{- $labels := include "tidemark.labels" (dict "root" .root "role" "secrets") -}}
{{- $weight := .weight }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  labels:
    {{- $labels | nindent 4 }}
  {{- if $weight }}
  annotations:
    {{- include "tidemark.secretsHook" $weight | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  labels:
    {{- $labels | nindent 4 }}
  {{- if $weight }}
  annotations:
    {{- include "tidemark.secretsHook" $weight | nindent 4 }}
  {{- end }}
rules:
  {{- /* A rule without names would be one for all Secrets. */}}
  {{- with include "tidemark.secretsChanged" .root | fromYamlArray }}
  - apiGroups: [""]
    resources: [secrets]
    verbs: [get, patch]
    resourceNames:
      {{- toYaml . | nindent 6 }}
  {{- end }}
  {{- with include "tidemark.secretsRead" .root | fromYamlArray }}
  - apiGroups: [""]
    resources: [secrets]
    verbs: [get]
    resourceNames:
      {{- toYaml . | nindent 6 }}
  {{- end }}
  # What does not exist has no name that a rule could name.
  - apiGroups: [""]
    resources: [secrets]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  labels:
    {{- $labels | nindent 4 }}
  {{- if $weight }}
  annotations:
    {{- include "tidemark.secretsHook" $weight | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- /* Secrets that the Jobs change, as a list: certificates that they renew, and configurations of clients. */ -}}
{{- define "tidemark.secretsChanged" -}}
{{- $name := include "tidemark.name" . -}}
{{- $names := list -}}
{{- if .Values.auth.enabled -}}
{{- $names = append $names (printf "%s-client" $name) -}}
{{- range include "tidemark.madeUsers" . | fromYamlArray -}}
{{- $names = append $names (printf "%s-user-%s" $name .) -}}
{{- end -}}
{{- end -}}
{{- if .Values.tls.existingSecret -}}
{{- $names = append $names (printf "%s-operator-tls" $name) -}}
{{- else if and .Values.tls.enabled (not .Values.tls.issuerRef.name) -}}
{{- range $role, $_ := include "tidemark.certificates" . | fromYaml -}}
{{- $names = append $names (printf "%s-%s-tls" $name $role) -}}
{{- end -}}
{{- end -}}
{{ toYaml $names }}
{{- end -}}

{{- /* Secrets that the Jobs only read, as a list: those that are given, and those that they make once. */ -}}
{{- define "tidemark.secretsRead" -}}
{{- $name := include "tidemark.name" . -}}
{{- $names := list -}}
{{- if .Values.auth.enabled -}}
{{- $names = append $names (include "tidemark.passwordSecret" .) -}}
{{- end -}}
{{- if .Values.tls.existingSecret -}}
{{- $names = concat $names (list .Values.tls.existingSecret (printf "%s-zookeeper-user" $name)) -}}
{{- else if .Values.tls.issuerRef.name -}}
{{- $names = concat $names (list (printf "%s-operator-tls" $name) (printf "%s-zookeeper-user" $name)) -}}
{{- else if .Values.tls.enabled -}}
{{- $names = append $names (printf "%s-ca" $name) -}}
{{- if not .Values.zookeeper.external -}}
{{- $names = append $names (printf "%s-zookeeper-user" $name) -}}
{{- end -}}
{{- end -}}
{{ toYaml $names }}
{{- end -}}

{{- /* Pod that runs tidemark k8s make-secrets. Arguments: root, name of the account, and wait: seconds for which it
       waits for the authority, or 0. */ -}}
{{- define "tidemark.secretsPod" -}}
{{- $root := .root -}}
{{- $v := .root.Values -}}
metadata:
  labels:
    {{- include "tidemark.selector" (dict "root" $root "role" "secrets") | nindent 4 }}
    {{- with $v.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  restartPolicy: OnFailure
  serviceAccountName: {{ .name }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with $v.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: secrets
      image: {{ include "tidemark.image" (dict "root" $root "image" $v.image) }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command:
        - tidemark
        - k8s
        - make-secrets
        - {{ $root.Release.Name }}
        - --namespace={{ $root.Release.Namespace }}
        - --name={{ include "tidemark.name" $root }}
        - --bootstrap={{ include "tidemark.name" $root }}-bootstrap.{{ include "tidemark.domain" $root }}:9092
        {{- if $v.grpc.enabled }}
        - --grpc-bootstrap={{ include "tidemark.name" $root }}-bootstrap.{{ include "tidemark.domain" $root }}:9792
        {{- end }}
        {{- if $v.auth.enabled }}
        - --user={{ $v.auth.superUser }}
        {{- with $v.auth.existingSecret }}
        - --given-password={{ . }}
        {{- end }}
        {{- range include "tidemark.madeUsers" $root | fromYamlArray }}
        - --secret-of={{ . }}
        {{- end }}
        {{- end }}
        {{- if $v.tls.existingSecret }}
        - --given-certificate={{ $v.tls.existingSecret }}
        {{- else if $v.tls.issuerRef.name }}
        - --authority={{ include "tidemark.certificateSecret" (dict "root" $root "role" "operator") }}
        {{- with .wait }}
        - --wait={{ . }}
        {{- end }}
        {{- else if $v.tls.enabled }}
        {{- range $role, $hosts := include "tidemark.certificates" $root | fromYaml }}
        - --certificate={{ $role }}={{ join "," $hosts }}
        {{- end }}
        {{- end }}
      {{- include "tidemark.containerSecurity" $root | nindent 6 }}
      env:
        - {name: HOME, value: /tmp}
      resources:
        {{- toYaml $v.secretsJob.resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 16Mi}
    - name: token
      projected:
        sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3600}
          - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
{{- end -}}
