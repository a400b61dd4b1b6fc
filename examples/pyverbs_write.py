#!/usr/bin/python3
"""pyverbs_write.py [DEVICE]: RDMA WRITE between two queue pairs of one process, in Python (package python3-pyverbs).

The first device is used unless one is named. Both ends belong to this process, so nothing has to be exchanged.
"""
import sys

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PORT = 1
GID_INDEX = 0
TEXT = 'hello over RDMA'


def connect(qp, remote, gid):
    """RESET to RTS, towards the QP `remote` at the address `gid`."""
    attr = QPAttr(port_num=PORT)
    attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
    attr.dest_qp_num = remote.qp_num
    attr.path_mtu = e.IBV_MTU_1024
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.min_rnr_timer = 12
    attr.timeout, attr.retry_cnt, attr.rnr_retry = 14, 7, 7
    attr.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=GlobalRoute(dgid=gid, sgid_index=GID_INDEX, hop_limit=64))
    qp.to_rts(attr)


def await_completion(cq):
    """The next entry of the completion queue."""
    count = 0
    while count == 0:
        count, completions = cq.poll()
    if completions[0].status != e.IBV_WC_SUCCESS:
        raise RuntimeError(f'completion status {completions[0].status}')
    return completions[0]


def main():
    devices = [device.name.decode() for device in get_device_list()]
    name = sys.argv[1] if len(sys.argv) > 1 else next(iter(devices), None)
    if name not in devices:
        sys.exit(f'no such device: {name}; there are: {" ".join(devices) or "none"}')
    with Context(name=name) as context, PD(context) as pd, CQ(context, 16) as cq:
        source = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
        target = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=1, max_recv_wr=1))
        sender, receiver = QP(pd, init), QP(pd, init)
        gid = context.query_gid(PORT, GID_INDEX)
        connect(receiver, sender, gid)
        connect(sender, receiver, gid)

        source.write(TEXT, len(TEXT))
        request = SendWR(wr_id=1, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(source.buf, len(TEXT), source.lkey)],
                         send_flags=e.IBV_SEND_SIGNALED)
        request.set_wr_rdma(target.rkey, target.buf)
        sender.post_send(request)
        await_completion(cq)
        print(f'{name}: the target holds: {target.read(len(TEXT), 0).decode()}')


if __name__ == '__main__':
    main()
