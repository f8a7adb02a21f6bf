# For the scripts beside it, to be sourced: several processes on one GPU.
#
# Kernels of several processes run at the same time only under NVIDIA's multi-process service. Where its daemon starts
# and its server does not, no process can use the GPU: then it is stopped again.
share_gpu() {  # the program of Python; the device
    if [ "$2" = cpu ] || ! command -v nvidia-cuda-mps-control >/dev/null; then return; fi
    nvidia-cuda-mps-control -d 2>/dev/null || true
    if ! timeout 120 "$1" -c 'import torch; torch.zeros(1, device="cuda").item()'; then
        echo "the multi-process service does not work here: the runs take turns" >&2
        echo quit | timeout 20 nvidia-cuda-mps-control || true
    fi
}
