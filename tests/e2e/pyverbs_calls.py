#!/usr/bin/python3
"""A program of pyverbs for cases_faults.py. For each line that it reads it makes one call, and prints the errno that it got, or
0; or it posts a WRITE and prints the number of the asynchronous event that came."""
import os
import sys

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import DM, AllocDmAttr, Context
from pyverbs.flow import Flow, FlowAttr
from pyverbs.mr import MR, MW
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, SendWR
from pyverbs.xrcd import XRCD, XRCDInitAttr

RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE


class Objects:
    def __init__(self, device):
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 64)
        self.mr = MR(self.pd, 4096, RIGHTS)
        self.srq = self.make_srq()
        self.qp = self.make_qp(e.IBV_QPT_RC, self.srq)
        self.raw = self.make_qp(e.IBV_QPT_RAW_PACKET)
        self.raw.to_init(QPAttr(port_num=1))
        self.connect()

    def make_srq(self):
        return SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=16)))

    def make_qp(self, kind, srq=None):
        return QP(self.pd, QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, srq=srq, cap=QPCap(max_send_wr=16, max_recv_wr=16)))

    def route(self):
        own = GID(self.context.query_gid(1, 0).gid)
        return AHAttr(gr=GlobalRoute(dgid=own, sgid_index=0), is_global=1, port_num=1)

    def connect(self):
        """To itself."""
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = RIGHTS
        attr.dest_qp_num = self.qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        attr.ah_attr = self.route()
        self.qp.to_rts(attr)

    def event(self):
        work = SendWR(wr_id=1, opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(self.mr.buf, 8, self.mr.lkey)],
                      send_flags=e.IBV_SEND_SIGNALED)
        work.set_wr_rdma(self.mr.rkey, self.mr.buf + 64)
        self.qp.post_send(work)
        event = self.context.get_async_event()
        number = event.event_type
        event.ack()
        while number != e.IBV_EVENT_DEVICE_FATAL and self.cq.poll()[0] == 0:
            pass
        return number

    def makers(self):
        """By command: makes an object."""
        xrcd = XRCDInitAttr(e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS, os.O_CREAT, -1)
        return {
            'pd': lambda: PD(self.context), 'mr': lambda: MR(self.pd, 4096, RIGHTS), 'channel': lambda: CompChannel(self.context),
            'cq': lambda: CQ(self.context, 8), 'srq': self.make_srq, 'qp': lambda: self.make_qp(e.IBV_QPT_RC),
            'ah': lambda: AH(self.pd, attr=self.route()), 'xrcd': lambda: XRCD(self.context, xrcd),
            'mw': lambda: MW(self.pd, e.IBV_MW_TYPE_1), 'dm': lambda: DM(self.context, AllocDmAttr(length=64)),
            'flow': lambda: Flow(self.raw, FlowAttr(num_of_specs=0, port=1)),
        }

    def make(self, command):
        """A call that makes an object, or fails."""
        self.makers()[command.split('_')[-1]]().close()

    def end(self, command):
        """A call that ends an object; if it fails, another one ends it."""
        made = self.makers()[command.split('_')[-1]]()
        try:
            made.close()
        except PyverbsRDMAError:
            made.close()
            raise

    def change(self, command):
        """Other calls."""
        if command == 'resize_cq':
            self.cq.resize(128)
        elif command == 'rereg_mr':
            self.mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, self.pd, 0, 0, RIGHTS)
        elif command == 'modify_srq':
            self.srq.modify(SrqAttr(srq_limit=1), e.IBV_SRQ_LIMIT)
        elif command == 'query_srq':
            self.srq.query()
        elif command == 'modify_qp':
            self.make_qp(e.IBV_QPT_RC).to_init(QPAttr(port_num=1))
        else:
            self.qp.query(e.IBV_QP_STATE)


def errno_of(objects, command):
    verb = command.split('_')[0]
    kind = {'alloc': objects.make, 'reg': objects.make, 'create': objects.make, 'open': objects.make, 'dealloc': objects.end,
            'dereg': objects.end, 'destroy': objects.end, 'close': objects.end, 'free': objects.end}
    try:
        kind.get(verb, objects.change)(command)
    except PyverbsRDMAError as failure:
        return failure.error_code
    return 0


def main():
    objects = Objects(sys.argv[1])
    print('ready', flush=True)
    for line in sys.stdin:
        command = line.strip()
        print(command, objects.event() if command == 'event' else errno_of(objects, command), flush=True)


if __name__ == '__main__':
    main()
