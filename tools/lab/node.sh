# First process of a node. Its namespaces are made; containerd, kubelet and kube-proxy are its own.
set -u
for controller in memory freezer cpuacct; do
  # 0 is the process that writes: its pid here is not its pid for the kernel.
  echo 0 >"/sys/fs/cgroup/$controller/$NODE/host/cgroup.procs"
done
mount --make-rshared /
hostname "$NODE"
for directory in /run /var/lib /var/log; do mount -t tmpfs tmpfs "$directory"; done
mkdir -p /run/netns /var/lib/kubelet /var/lib/cni
mount --bind "$DIRECTORY/kubelet" /var/lib/kubelet
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables

containerd -c "$DIRECTORY/containerd.toml" &
until ctr -a "$CONTAINERD" version >/dev/null 2>&1; do sleep 0.1; done
if [ ! -e "$DIRECTORY/loaded" ]; then
  for image in $IMAGES; do ctr -a "$CONTAINERD" -n k8s.io images import "$image" || exit 1; done
  touch "$DIRECTORY/loaded"
fi
kubelet "--config=$DIRECTORY/kubelet.yaml" "--kubeconfig=$KUBECONFIG" --root-dir=/var/lib/kubelet \
  "--hostname-override=$NODE" "--node-ip=$NODE_IP" "--cert-dir=$DIRECTORY/keys" \
  "--node-labels=topology.kubernetes.io/zone=$ZONE,topology.kubernetes.io/region=lab" &
kube-proxy "--kubeconfig=$KUBECONFIG" --proxy-mode=nftables "--cluster-cidr=$PODS" \
  "--hostname-override=$NODE" --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 \
  --conntrack-tcp-timeout-close-wait=0 &
while :; do wait -n || sleep 1; done
