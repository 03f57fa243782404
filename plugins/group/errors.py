"""What a client is told when something went wrong: the codes of the format, in its language."""

from __future__ import annotations

INVALID = "MSG_FMT_100"
NO_JSON = "MSG_FMT_103"
NOT_SENT = "MSG_SND_001"
NOT_IDENTIFIED = "MSG_WSK_203"
WRONG_TOKEN = "auth_failed"  # noqa: S105 (no password)
AGENT_FAILED = "agent_error"  # if the agent gives no code of its own

# By the rules of `busd.gateway.RULES`.
OF_RULES = {
    "unauthenticated": (
        NOT_IDENTIFIED,
        "尚未通过身份验证，请先发送带有 auth_token 的 connect 消息",
    ),
    "authentication": (WRONG_TOKEN, "授权失败，请重新登录"),
    "author": (INVALID, "消息发送者与当前用户不匹配"),
    "conversation": (NOT_SENT, "您不在这个房间里，请先发送 join 消息"),
    "member": (NOT_IDENTIFIED, "您不是这个房间的成员，请联系房间成员邀请您加入"),
    "invalid": (INVALID, "消息内容无效"),
    "agent": (NOT_SENT, "没有这个代理，或者它拒绝了这条消息"),
    "prompt": (NOT_SENT, "这个投票不存在或已经结束"),
    "option": (INVALID, "没有这个选项"),
    "limit": (NOT_SENT, "已达到上限，请稍后再试"),
    "busy": (NOT_SENT, "系统繁忙，请稍后再试"),
}


class Invalid(Exception):
    """A frame is not as it should be; `field` names the member that is at fault."""

    def __init__(self, field: str, problem: str, code: str = INVALID, message_id: str = "") -> None:
        self.field = field
        self.problem = problem
        self.code = code
        self.message_id = message_id

    @property
    def text(self) -> str:
        """What is wrong, for the user."""
        if self.code == NO_JSON:
            return "无效的JSON格式"
        return f"消息验证失败：{self.field} {self.problem}"

    @property
    def details(self) -> str:
        """The member and what is wrong with it."""
        return f"{self.field}: {self.problem}"
